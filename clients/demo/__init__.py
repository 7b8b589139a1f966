"""The demo: a travel claim is carried from a killed phone to a desktop, in processes of their own."""

__all__: list[str] = []
