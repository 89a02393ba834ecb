"""Skip the doctests of modules that need ROS 2 or stable-baselines3; tests/client tests these modules with stubs."""

collect_ignore = ["src/cfmon_client/ros2.py", "src/cfmon_client/stable_baselines.py"]
