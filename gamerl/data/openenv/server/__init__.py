"The web server."
