module dlock/tests

go 1.19

require dlock v0.0.0

replace dlock => ../../../bindings/go
