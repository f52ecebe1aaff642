"""What an application imports to consume and produce with Rota."""
