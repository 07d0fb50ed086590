package builtin

// RefuseBy replaces the rule by which addresses are refused.
func RefuseBy(opts HTTPOptions, refuse func(address string) string) HTTPOptions {
	opts.refuse = refuse
	return opts
}
