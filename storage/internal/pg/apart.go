package pg

// Apart reads rows by their ids at once. If that fails because of a row, it reads one by one, and returns the errors of
// those that cannot be read: one row makes no list fail.
func Apart[ID comparable, R any](ids []ID, read func([]ID) ([]R, error)) (rows []R, failed map[ID]error, err error) {
	rows, err = read(ids)
	if err == nil || !BelongsToRow(Translate(err)) {
		return rows, nil, Translate(err)
	}
	rows, failed = nil, map[ID]error{}
	for _, id := range ids {
		one, err := read([]ID{id})
		switch err = Translate(err); {
		case err == nil:
			rows = append(rows, one...)
		case BelongsToRow(err):
			failed[id] = err
		default:
			return nil, nil, err
		}
	}
	return rows, failed, nil
}
