"""A check within seconds of whether a host is reachable."""

import threading
import urllib.error
import urllib.request

PROBE_SECONDS = 6.0


def unreachable(url: str) -> str:
    """Return why ``url`` does not answer, or the empty string if it does.

    On a network that drops packets download libraries wait for minutes, and with a dead name server the lookup itself
    blocks. The request is therefore made in a thread, which is given up after ``PROBE_SECONDS``.
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
