-- One for each of the three: MLflow and Optuna both keep a table `alembic_version`, of different contents.
CREATE DATABASE mlflow;
CREATE DATABASE studies;
