"""The relay: a thin websocket service that stores and forwards entries."""
