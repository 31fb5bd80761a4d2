"""Whether a host answers at all, found out in seconds."""

import threading
import urllib.error
import urllib.request

PROBE_SECONDS = 6.0


def unreachable(url: str) -> str:
    """Why ``url`` does not answer, or the empty string.

    Download libraries wait for minutes on a network that drops packets, and a dead name server holds the lookup
    itself: so a thread asks first, and is not waited for any longer than ``PROBE_SECONDS``.
    """
    answer = [f"no answer within {PROBE_SECONDS:g} seconds"]

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PROBE_SECONDS).close()
            answer[0] = ""
        except urllib.error.HTTPError:
            answer[0] = ""
        except urllib.error.URLError as error:
            answer[0] = str(error.reason)
        except (OSError, ValueError) as error:
            answer[0] = str(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answer[0]
