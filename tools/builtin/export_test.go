package builtin

// RefuseBy replaces the function that refuses addresses.
func RefuseBy(opts HTTPOptions, refuse func(address string) string) HTTPOptions {
	opts.refuse = refuse
	return opts
}
