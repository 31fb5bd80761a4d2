"""Hydra takes plugins from this namespace alone. This one adds the folders of ``--config-dir`` to its search path."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from ntl.config.folders import own_folders


class OwnFolders(SearchPathPlugin):
    """``ntl.config.own`` has checked that none of their files has the name of one in ``config/``."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folders."""
        for folder in own_folders:
            search_path.append("ntl", f"file://{folder}")
