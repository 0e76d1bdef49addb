"""Other programs in the same run: llama-server from a wheel, and servers by their address."""

from localspec.bench.peers.base import Peer, PeerReply
from localspec.bench.peers.configs import PLAIN, SPEC_CONFIGS, PeerConfig, chosen_draft, peer_configs
from localspec.bench.peers.llama_server import LlamaServerPeer, start_llama_server
from localspec.bench.peers.openai import UNKNOWN, OpenAIPeer

__all__ = [
    "PLAIN",
    "SPEC_CONFIGS",
    "UNKNOWN",
    "LlamaServerPeer",
    "OpenAIPeer",
    "Peer",
    "PeerConfig",
    "PeerReply",
    "chosen_draft",
    "peer_configs",
    "start_llama_server",
]
