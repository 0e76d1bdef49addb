"""localspec: chat with a local GGUF model, sped up by speculative decoding that shows its work."""

__version__ = "0.1.0"
