"""Chat templates in the shape of those that well-known models carry, and vocabularies for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.types import ChatMessage
from tests.models.conftest import gguf_bytes
from tests.models.vocabularies import bpe_metadata


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def assistant(text: str) -> ChatMessage:
    return ChatMessage("assistant", text)


CHATML_LIKE = """{% for message in messages %}
{%- if loop.first and message.role != 'system' %}
{{- '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
{%- endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

LLAMA3_LIKE = """{{- bos_token }}
{%- set today = strftime_now("%d %b %Y") %}
{%- if messages[0]['role'] == 'system' %}
    {%- set instructions = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set instructions = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + today + "\\n\\n" + instructions }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim }}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

GEMMA_LIKE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for message in messages -%}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif -%}
  {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
  {{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

QWEN3_LIKE = """{%- if tools %}{{ tools | tojson }}{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for message in messages[::-1] %}
    {%- if ns.last_user == -1 and message.role == "user" %}
        {%- set ns.last_user = messages | length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" and '</think>' in content and loop.index0 < ns.last_user %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

GEMMA3_LIKE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

MISTRAL_LIKE = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set questions = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, " ~ (questions | length)) }}
    {%- endif %}
{%- endfor %}
"""

PHI_LIKE = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{
'<|system|>\\n' + message['content'] + '<|end|>\\n' }}{% elif message['role'] == 'user' %}{{
'<|user|>\\n' + message['content'] + '<|end|>\\n' }}{% elif message['role'] == 'assistant' %}{{
'<|assistant|>\\n' + message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}{%
if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}
"""

DEEPSEEK_LIKE = """{% if not thinking is defined -%}{%- set thinking = false -%}{%- endif -%}
{%- set ns = namespace(head='', first=true, after_user=false) -%}
{%- for message in messages -%}
  {%- if message['role'] == 'system' -%}
    {%- if ns.first -%}{%- set ns.head = message['content'] -%}{%- set ns.first = false -%}
    {%- else -%}{%- set ns.head = ns.head + '\\n\\n' + message['content'] -%}{%- endif -%}
  {%- endif -%}
{%- endfor -%}
{{- bos_token }}{{ ns.head }}
{%- for message in messages -%}
  {%- if message['role'] == 'user' -%}
    {%- set ns.after_user = true -%}
    {{- '<|User|>' + message['content'] -}}
  {%- elif message['role'] == 'assistant' -%}
    {%- set content = message['content'] -%}
    {%- if '</think>' in content -%}{%- set content = content.split('</think>', 1)[1] -%}{%- endif -%}
    {{- '<|Assistant|>' + '</think>' + content + eos_token -}}
    {%- set ns.after_user = false -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.after_user -%}
  {{- '<|Assistant|>' + ('<think>' if thinking else '</think>') -}}
{%- endif -%}
"""


@dataclass(frozen=True)
class Shape:
    """A template with the control tokens of its vocabulary: the first is BOS, the second EOS."""

    template: str
    special: tuple[str, ...]
    adds_bos: bool = True

    def tokenizer(self) -> dict[str, Any]:
        """Metadata of a file."""
        return bpe_metadata(
            special=self.special, bos=0, eos=1, adds_bos=self.adds_bos, template=self.template
        )


SHAPES = {
    "chatml": Shape(CHATML_LIKE, ("<|endoftext|>", "<|im_end|>", "<|im_start|>"), adds_bos=False),
    "llama3": Shape(
        LLAMA3_LIKE, ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
    ),
    "gemma": Shape(GEMMA3_LIKE, ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")),
    "mistral": Shape(MISTRAL_LIKE, ("<s>", "</s>", "[INST]", "[/INST]")),
    "phi": Shape(PHI_LIKE, ("<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")),
    "qwen3": Shape(
        QWEN3_LIKE, ("<|endoftext|>", "<|im_end|>", "<|im_start|>", "<think>", "</think>"), adds_bos=False
    ),
    "deepseek": Shape(
        DEEPSEEK_LIKE, ("<|begin|>", "<|end|>", "<|User|>", "<|Assistant|>", "<think>", "</think>")
    ),
}

_WIDTH, _F32 = 32, 0


def write_model(path: Path, tokenizer: dict[str, Any]) -> Path:
    """A whole model of one layer, all zeros, that llama.cpp loads, with that tokenizer."""
    words = len(tokenizer["tokenizer.ggml.tokens"])
    square, wide = (_WIDTH, _WIDTH), (_WIDTH,)
    layer = {
        **dict.fromkeys(("attn_norm", "ffn_norm"), wide),
        **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), square),
        **dict.fromkeys(("ffn_gate", "ffn_up", "ffn_down"), square),
    }
    tensors = [("token_embd.weight", (_WIDTH, words), _F32), ("output_norm.weight", wide, _F32)]
    tensors += [(f"blk.0.{name}.weight", shape, _F32) for name, shape in layer.items()]
    shape = {
        "llama.block_count": 1,
        "llama.context_length": 512,
        "llama.embedding_length": _WIDTH,
        "llama.feed_forward_length": _WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.head_count_kv": 1,
        "llama.rope.dimension_count": _WIDTH,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": words,
    }
    path.write_bytes(gguf_bytes(shape | tokenizer, tensors=tuple(tensors)))
    return path
