"""What operators of all frameworks share: which parameter plays which role, and the derivatives that are asked for."""
