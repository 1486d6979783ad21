-- Beside `replies`, MLflow and Optuna each need a database: both keep a table `alembic_version`, with different contents.
CREATE DATABASE mlflow;
CREATE DATABASE studies;
