"""Tests; a package of its own, because gmqtt (extra `bench`) installs one of the same name."""
