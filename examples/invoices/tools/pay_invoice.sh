#!/bin/sh
# Pays the invoice on the standard input: it appends the payment to payments.jsonl.
# A program of yours would call the bank here.
set -eu
read -r payment
printf '%s\n' "$payment" >>payments.jsonl
echo "paid: $payment"
