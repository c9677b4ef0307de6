"""What only makes things quicker is compiled where there is a compiler; all of it works without. The rest is in
pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"duramen.{module}", [f"src/duramen/{module.replace('.', '/')}.c"], optional=True)
        for module in ("embedders._layers", "integrations.langgraph._referring")
    ]
)
