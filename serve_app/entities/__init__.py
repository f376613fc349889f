"""What a turn names: people, places, works, orders, codes, dates. Rules only; pure and the same in every process."""
