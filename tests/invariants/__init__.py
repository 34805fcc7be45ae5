"""The promises P1 to P9 as functions of what was seen of a run, for simulations, integration runs and fault runs alike."""
