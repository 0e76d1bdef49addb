"""The audit: is the speculative reply, token for token, the reply that the model gives alone?

Every prompt is answered by plain decoding and by every drafter and rule. Where a reply parts from the plain
one, the pass that decided is judged by what it left behind, not by how plausible the text looks:

- the token must be the one that the sampler draws from that pass's own row of logits; else the rule of
  verification is at fault;
- that row may differ from the row of plain decoding by no more than rounding makes it differ; else the cache
  or the batch is at fault.

Both together mean that the two tokens were so close that the rounding of a wider pass decided. How far
rounding moves logits is measured on the model itself (`noise`): the plain replies are decoded once more in
passes of many widths, over a cache that was never rolled back and without any drafter or rule, so that no
fault of speculation can hide in the measure.
"""
