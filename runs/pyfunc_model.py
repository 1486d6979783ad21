"""The compiled judge as an MLflow model: rows of texts in, scores out, many at once.

MLflow runs this file when it loads the model (models from code), with the model's own copy of the project on
the path. `mlflow.pyfunc.load_model(URI, model_config={...})` may override `lm`, `api_base` and
`concurrency`; API keys are read from the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.pyfunc import PythonModelContext
