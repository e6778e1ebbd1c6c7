"""How each update of an adjoint is made: plainly, summed up, gathered, or atomically; and the proofs."""
