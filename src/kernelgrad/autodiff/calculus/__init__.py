"""What a derivative is made of: rules, which values are active, shadows, adjoint variables, the tape."""
