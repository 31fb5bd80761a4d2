"""Run records, and the tables that are computed from them and from nothing else. Never imports torch."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.results.effects import effect as effect
    from ntl.results.effects import summarize as summarize
    from ntl.results.match import missing_decodings as missing_decodings
    from ntl.results.match import table_runs as table_runs
    from ntl.results.record import RunRecord as RunRecord
    from ntl.results.record import load_records as load_records
    from ntl.results.record import pack_bits as pack_bits
    from ntl.results.record import read_record as read_record
    from ntl.results.record import thin_curve as thin_curve
    from ntl.results.record import unpack_bits as unpack_bits
    from ntl.results.record import write_record as write_record
    from ntl.results.render import write_tables as write_tables
    from ntl.results.table import Table as Table
    from ntl.results.table import build_table as build_table

__getattr__, __all__ = exports(__name__, __file__)
