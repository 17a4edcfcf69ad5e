"""Publishes the span each thread works for, without a change to the application."""

__version__ = "0.1.0"
