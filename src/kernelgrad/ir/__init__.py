"""The intermediate representation: small, structured, SSA. `ops` is its grammar."""
