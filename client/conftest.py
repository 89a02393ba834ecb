"""Modules whose library the tests need not have are not searched for doctests; tests/client covers them with stubs."""

collect_ignore = ["src/cfmon_client/ros2.py", "src/cfmon_client/stable_baselines.py"]
