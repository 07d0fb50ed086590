package storage

// Points at which a fault.Hook is called. At a point that ends in ".sent", a
// transaction has been sent with its commit, and the answer is not read yet.
const (
	PointAcceptBefore = "accept.before"
	PointAcceptSent   = "accept.sent"
	PointAcceptAfter  = "accept.after"
)

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string { return []string{PointAcceptBefore, PointAcceptSent, PointAcceptAfter} }
