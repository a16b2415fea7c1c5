"""What went wrong at the hub, in one line. Must not fetch anything."""

from __future__ import annotations

from llmcli.checkpoint.escape import printable
from llmcli.errors import AcquireError

_SIGN_IN = "accept its terms on the model's page, then sign in with `hf auth login` or set HF_TOKEN"


def explain(error: Exception, repo: str, revision: str) -> AcquireError:
    """The error to show for `error`, raised while `repo` was being fetched."""
    from huggingface_hub import errors

    name, at = printable(repo), printable(revision)
    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return _not_here(error, name)
    if isinstance(error, errors.GatedRepoError):
        return AcquireError(f"{name} is gated and this machine has no access", hint=_SIGN_IN)
    if isinstance(error, errors.RepositoryNotFoundError):
        return AcquireError(
            f"{name} is not on the hub, or is private",
            hint="check the spelling; for a private model, sign in with `hf auth login`",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return AcquireError(f"{name} has no revision {at}", hint="look at its list of branches")
    if isinstance(error, errors.HFValidationError):
        return AcquireError(f"{name} is not a hub id", hint="an id looks like owner/name")
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code if error.response is not None else "no status"
        if status in (401, 403):
            return AcquireError(f"access refused (HTTP {status})", hint=_SIGN_IN)
        return AcquireError(f"the hub answered HTTP {status}", hint="try again later")
    return AcquireError(
        f"the connection failed ({_first_line(error)})",
        hint="pull again; what has been fetched is kept",
    )


def _not_here(error: Exception, name: str) -> AcquireError:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return AcquireError(
            f"HF_HUB_OFFLINE is set and the hub's cache holds no whole copy of {name}",
            hint="unset HF_HUB_OFFLINE to fetch it",
        )
    cause = error.__cause__ or error
    return AcquireError(f"the connection failed ({_first_line(cause)})")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return printable(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
