module rota.dev/tests/reaper

go 1.26.0
