"""The product's own agents on virtual time: a seed decides every order, delay and fault, and gives the same run again."""
