"""Functions of llama.cpp for hidden states, which its library exports under C++ names only.

They are not part of its public interface: another release may lack one. Then what needs them is refused in a
sentence, and everything else works.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from localspec.errors import IncompatibleError
from localspec.runtime.library import lib

_CONTEXT = _MODEL = ctypes.c_void_p
_FLOATS = ctypes.POINTER(ctypes.c_float)

# Itanium names (Linux, macOS) and Microsoft's, in this order.
_SYMBOLS: dict[str, tuple[tuple[str, str], Any, Sequence[Any]]] = {
    "set_nextn": (
        (
            "_Z26llama_set_embeddings_nextnP13llama_contextbb",
            "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        ),
        None,
        (_CONTEXT, ctypes.c_bool, ctypes.c_bool),
    ),
    "get_nextn": (
        (
            "_Z26llama_get_embeddings_nextnP13llama_context",
            "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        ),
        _FLOATS,
        (_CONTEXT,),
    ),
    "get_nextn_row": (
        (
            "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
            "?llama_get_embeddings_nextn_ith@@YAPEAMPEAUllama_context@@H@Z",
        ),
        _FLOATS,
        (_CONTEXT, ctypes.c_int32),
    ),
    "set_nextn_layer": (
        (
            "_Z28llama_set_nextn_layer_offsetP13llama_contexti",
            "?llama_set_nextn_layer_offset@@YAXPEAUllama_context@@H@Z",
        ),
        None,
        (_CONTEXT, ctypes.c_int32),
    ),
    "set_layer_input": (
        (
            "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
            "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        ),
        None,
        (_CONTEXT, ctypes.c_uint32, ctypes.c_bool),
    ),
    "get_layer_input": (
        (
            "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
            "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        ),
        _FLOATS,
        (_CONTEXT, ctypes.c_uint32),
    ),
}


class Ext:
    """The functions, by the names of the table above.

    Attributes:
        missing: those that this library does not have.
    """

    def __init__(self, library: Any) -> None:
        self.missing: list[str] = []
        for name, (symbols, result, arguments) in _SYMBOLS.items():
            function = next((found for one in symbols if (found := getattr(library, one, None))), None)
            if function is None:
                self.missing.append(name)
                continue
            function.restype, function.argtypes = result, list(arguments)
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise IncompatibleError(
            f"This build of llama.cpp cannot hand out hidden states (it lacks {name}); update "
            "llama-cpp-python, or choose another --draft."
        )


@functools.cache
def ext() -> Ext:
    """The functions of the library that is loaded."""
    return Ext(lib()._lib)


def missing() -> str | None:
    """Why heads cannot be used with this library, in a sentence; None where they can."""
    lacking = ext().missing
    if not lacking:
        return None
    return (
        f"This build of llama.cpp cannot hand out hidden states (it lacks {', '.join(lacking)}); update "
        "llama-cpp-python, or choose another --draft."
    )
