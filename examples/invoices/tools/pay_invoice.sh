#!/bin/sh
# Reads a payment from standard input and appends it to payments.jsonl. Your own
# program would call the bank here.
set -eu
read -r payment
printf '%s\n' "$payment" >>payments.jsonl
echo "paid: $payment"
