"""llama.cpp, wrapped: the only code that imports `llama_cpp`."""
