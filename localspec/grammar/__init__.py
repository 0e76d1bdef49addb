"""What a reply may look like: GBNF grammars, checked before native code reads them, and JSON schemas."""

from __future__ import annotations

from localspec.grammar.gbnf import check_grammar
from localspec.grammar.schema import grammar_of_schema

__all__ = ["check_grammar", "grammar_of_schema"]
