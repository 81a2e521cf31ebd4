"""The results as a Markdown table, the ratio first."""

from rounds import shown


def table(results):
    """One line for each comparison."""
    lines = ["| chunkmount is | what | medians | |", "| :-- | :-- | :-- | :-- |"]
    for row in results:
        verb = "takes " if row["measure"] == "amount" else ""
        ratios = ", ".join(f"{verb}{value:.2f} of {name}" for name, value in row["ratios"].items() if value is not None)
        figures = ", ".join(f"{name} {value:.3g}" for name, value in row["medians"].items())
        notes = "; ".join(f"{name} {shown(value)}" for name, value in row["notes"].items())
        lines.append(f"| {ratios or '-'} | {row['what']} | {figures} {row['unit']} | {notes} |")
    return "\n".join(lines)


LEGEND = "Over 1, chunkmount is faster; of memory, it takes more."
