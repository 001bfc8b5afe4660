"""All tests; a package, because the wheel of gmqtt brings one of the same name."""
