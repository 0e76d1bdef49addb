"""Other programs in the same run: llama-server from a wheel, and servers by their address."""
