"""Memory of a launch besides what the user passes: tapes, shadows, partial sums, replicas, copies."""
