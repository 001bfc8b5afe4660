"""Everything that is tested; a package, because gmqtt's wheel brings a package of this name, too."""
