"""What was said in earlier replies: an index to draft from, and the file that it is kept in."""
