package cli

import "turnkeeper/internal/app"

// version is what --version prints after the program's name.
func version() string { return app.Version() }
