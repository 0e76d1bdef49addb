"""The bench: what speculation gains on this machine, measured so that it can be believed.

Two modes. On a *transcript* the outcome of every step is forced to a recorded reply, at the real cost of
decoding, so that all drafters are judged on one text. *Free* runs are what a user gets, with the identity to
plain decoding beside the speed.
"""
