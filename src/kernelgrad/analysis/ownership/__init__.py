"""Which thread has which element for itself: proofs from index arithmetic, and what the user promises."""
