"""Everything said in earlier replies, searchable by what was said last."""
