"""Segue: carries an AI agent's half-finished task from one device to the next."""
