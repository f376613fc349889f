"""Times in Spanish.

Asked on a Wednesday, 12 March 2025, at 15:30; written from the conventions, case by case.
"""

from __future__ import annotations

import pytest

from tests.retrieve.when.clocks import wall

NOW = "2025-03-12T15:30:00+01:00"

NAMED = [
    ("anoche", "2025-03-11T18:00", "2025-03-12"),
    ("ayer por la tarde", "2025-03-11T12:00", "2025-03-11T18:00"),
    ("el lunes", "2025-03-10", "2025-03-11"),
    ("el lunes pasado", "2025-03-10", "2025-03-11"),
    ("el próximo viernes", "2025-03-21", "2025-03-22"),
    ("la semana pasada", "2025-03-03", "2025-03-10"),
    ("la semana que viene", "2025-03-17", "2025-03-24"),
    ("hace tres días", "2025-03-09", "2025-03-10"),
    ("hace dos semanas", "2025-02-24", "2025-03-03"),
    ("hace un mes", "2025-02-01", "2025-03-01"),
    ("hace dos años", "2023-01-01", "2024-01-01"),
    ("hace una hora", "2025-03-12T14:00", "2025-03-12T15:00"),
    ("hace 20 minutos", "2025-03-12T14:55", "2025-03-12T15:25"),
    ("hace un momento", "2025-03-12T15:00", "2025-03-12T15:30"),
    ("los últimos 10 días", "2025-03-02T15:30", "2025-03-12T15:30"),
    ("en las últimas 24 horas", "2025-03-11T15:30", "2025-03-12T15:30"),
    ("los últimos tres meses", "2024-12-12T15:30", "2025-03-12T15:30"),
    ("el sabado", "2025-03-08", "2025-03-09"),
    ("El Miercoles pasado", "2025-03-05", "2025-03-06"),
    ("el 5 de mayo", "2024-05-05", "2024-05-06"),
    ("5 de mayo de 2023", "2023-05-05", "2023-05-06"),
    ("del 3 al 5 de mayo", "2024-05-03", "2024-05-06"),
    ("entre marzo y mayo", "2025-03-01", "2025-06-01"),
    ("en mayo", "2024-05-01", "2024-06-01"),
    ("en mayo de 2024", "2024-05-01", "2024-06-01"),
    ("desde marzo", "2025-03-01", "2025-03-12T15:30"),
    ("desde el lunes", "2025-03-10", "2025-03-12T15:30"),
    ("antes de mayo", None, "2024-05-01"),
    ("después de Navidad", "2024-12-26", "2025-03-12T15:30"),
    ("hasta el viernes", None, "2025-03-08"),
    ("a principios de marzo", "2025-03-01", "2025-03-08"),
    ("a finales de enero", "2025-01-25", "2025-02-01"),
    ("a finales del año pasado", "2024-12-01", "2025-01-01"),
    ("a mediados de febrero", "2025-02-11", "2025-02-21"),
    ("el verano pasado", "2024-06-01", "2024-09-01"),
    ("el verano de 2023", "2023-06-01", "2023-09-01"),
    ("este invierno", "2024-12-01", "2025-03-01"),
    ("el primer trimestre de 2024", "2024-01-01", "2024-04-01"),
    ("el segundo semestre del año pasado", "2024-07-01", "2025-01-01"),
    ("en 2022", "2022-01-01", "2023-01-01"),
    ("Navidad", "2024-12-25", "2024-12-26"),
    ("Semana Santa", "2024-03-24", "2024-04-01"),
    ("Nochevieja", "2024-12-31", "2025-01-01"),
    ("el fin de semana pasado", "2025-03-08", "2025-03-10"),
    ("este fin de semana", "2025-03-15", "2025-03-17"),
    ("el fin de semana", "2025-03-08", "2025-03-10"),
    ("mañana por la mañana", "2025-03-13T06:00", "2025-03-13T12:00"),
    ("esta mañana", "2025-03-12T06:00", "2025-03-12T12:00"),
    ("esta noche", "2025-03-12T18:00", "2025-03-13"),
    ("pasado mañana", "2025-03-14", "2025-03-15"),
    ("el martes de la semana pasada", "2025-03-04", "2025-03-05"),
    ("el 15", "2025-02-15", "2025-02-16"),
    ("el 15 del mes pasado", "2025-02-15", "2025-02-16"),
    ("5/7/2023", "2023-07-05", "2023-07-06"),
    ("el año pasado", "2024-01-01", "2025-01-01"),
    ("en marzo del año pasado", "2024-03-01", "2024-04-01"),
    ("el primer lunes de marzo", "2025-03-03", "2025-03-04"),
    ("el último viernes de mayo", "2024-05-31", "2024-06-01"),
]

OTHER_LANGUAGES_TOO = {"el primer trimestre de 2024", "en 2022", "Nochevieja", "esta noche", "el 15", "5/7/2023"}
"""Nothing in them says that they are Spanish; a locale does."""

NOT_NAMED = [
    "¿Puedes darme otro segundo?",
    "¿Cómo se llama Abril?",
    "Julio me dijo algo, ¿qué era?",
    "versión 2.5.1",
    "todos los lunes corro",
    "un cuarto de hora",
    "¿Qué hago por la mañana?",
    "tres días de vacaciones",
    "buenas tardes",
    "el segundo piso",
]


@pytest.mark.parametrize(("query", "start", "end"), NAMED)
def test_a_time_that_is_named(query: str, start: str | None, end: str | None) -> None:
    assert wall(query, NOW, "es-ES") == (start, end)


@pytest.mark.parametrize("query", NOT_NAMED)
def test_no_time_is_named(query: str) -> None:
    assert wall(query, NOW, "es-ES") is None


@pytest.mark.parametrize(("query", "start", "end"), [row for row in NAMED if row[0] not in OTHER_LANGUAGES_TOO])
def test_its_words_tell_the_language(query: str, start: str | None, end: str | None) -> None:
    assert wall(query, NOW) == (start, end)
