module turnkeeper/dev

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	golang.org/x/tools v0.51.0
	turnkeeper v0.0.0
)

require (
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

replace turnkeeper => ../
